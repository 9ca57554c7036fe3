"""The version of the client and of the service, which pyproject.toml reads, too."""

__version__ = "0.9.0"
