"""Clients in gunicorn, Celery, Django and multiprocessing: created in each worker process, closed at its end."""
