"""Who may use the engine, and when.

Owns the lease (`lease`: one engine thread, safe against cancellation), its queue (`fair_queue`,
`deadlines`, `waiter`), the worker that tries grammars (`trials`) and the watchdog. Knows no wire
format.
"""
