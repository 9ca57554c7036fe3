"""A client that calls an application in this process, without a server."""

import httpx
from fastapi import FastAPI


def client_of(app: FastAPI) -> httpx.AsyncClient:
    """Gets an answer also where the application fails."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")
