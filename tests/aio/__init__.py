"""Tests of the asyncio clients."""
