"""Everything in one process: `manage.py up`.

The composition root of the embedded mode: SQLite, an in-memory broker and channel layer, a Celery worker and beat in
threads, the TLS API, the dashboard and simulated nodes. It adds no behaviour of its own; production runs the same
parts as separate processes.
"""
