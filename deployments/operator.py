"""Runs the operator's commands: python -m deployments.operator COMMAND."""

from deployments.cli.administration import operator

if __name__ == "__main__":
    operator()
