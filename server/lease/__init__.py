"""Who may use the engine, and when.

Owns the lease (`lease`: one engine thread, safe against cancellation), its queue (`model_queue`,
`fair_queue`, `deadlines`, `waiter`), the models in memory (`shelf`, `served_model`), the worker
that tries grammars (`trials`) and the watchdog. Knows no wire format.
"""
