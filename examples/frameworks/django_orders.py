"""A Django view that stores an order in its database, and announces it once that transaction is committed.

    python -m examples.frameworks.django_orders runserver
    python -m examples.frameworks.django_orders follow   # the consumer: a process of its own, like a management command

A process that dies between the commit and the announcement announces nothing. If that must not happen, write an outbox
table in the same transaction (docs/recipes.md has the program that empties it).
"""

from __future__ import annotations

import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from examples.frameworks.worker_producer import worker_producer
from pykclient import KafkaConsumer

DATABASE = os.environ.get("DATABASE", "orders.db")

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", "orders.db")}
        },
        ROOT_URLCONF=__name__,
        SECRET_KEY="only for this example",
    )
    django.setup()


def place_order(request: HttpRequest, number: int) -> HttpResponse:
    """Store the order. ``on_commit`` runs after the transaction, and not at all if it is rolled back."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item BLOB)")
            cursor.execute("INSERT INTO orders VALUES (%s, %s)", [number, request.body])
        transaction.on_commit(lambda: announce(number, request.body))
    return HttpResponse(status=202)


def announce(number: int, item: bytes) -> None:
    """Send the order, without a wait: the producer retries, and its log tells what could not be delivered."""
    worker_producer().send("orders", key=b"%d" % number, value=item)


def follow(max_records: int | None = None) -> None:
    """Print orders as they are announced."""
    servers = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    with KafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="followers", auto_offset_reset="earliest"
    ) as consumer:
        for count, record in enumerate(consumer, start=1):
            print((record.key or b"").decode(), (record.value or b"").decode(), flush=True)
            if count == max_records:
                break


urlpatterns = [path("orders/<int:number>", place_order)]

if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow()
    else:
        execute_from_command_line(sys.argv)
