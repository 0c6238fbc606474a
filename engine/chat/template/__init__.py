"""Hugging Face chat templates in a sandbox.

Read `sources` (where templates are found), `template` (a rendering), `sandbox` (what a template may
do), `budget` (how much of it), then `filters` and `strings`. Only this wing imports jinja2.
"""
