"""`antiphon models`: the models of a service and, with the server installed, of this machine."""

import click

from antiphon.cli.service import CommandGroup, ServiceClient, pass_service


@click.group(cls=CommandGroup)
def models() -> None:
    """List the models of a service."""


@models.command("list")
@pass_service
def list_models(service: ServiceClient) -> None:
    """List the models of the service with their status.

    \b
    antiphon models list
    """
    show_models(service)


def show_models(service: ServiceClient) -> None:
    listed = service.ask("GET", "/models")
    rows = []
    for model in listed["data"]:
        languages = ", ".join(model["languages"][:5]) + ", …" * (len(model["languages"]) > 5)
        status = model["problem"] or model["status"]
        if canary := model.get("canary"):
            status += f"; {canary['share']:.0%} to {canary['id']}"
        about = (status, languages, ", ".join(model["aliases"]))
        rows.append((model["id"], model["kind"], *about, model["description"] or ""))
    service.show_rows(listed, "ID, KIND, STATUS, LANGUAGES, ALSO CALLED, NOTE", rows)
