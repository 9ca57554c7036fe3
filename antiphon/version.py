"""The version of the client and of the service, which the two setup.py read, too."""

__version__ = "1.0.0"
