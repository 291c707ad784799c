"""A producer in gunicorn, Celery and Django: one for each worker process, created after its fork, closed at its end."""
