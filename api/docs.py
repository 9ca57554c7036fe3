"""The OpenAPI document, made truthful, and a page to read it on without the Internet."""


from fastapi import FastAPI


def add_docs(app: FastAPI) -> None:
    """Adds `/docs`; the document itself is at `/openapi.json`."""
