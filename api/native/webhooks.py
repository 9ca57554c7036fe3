"""Webhooks: subscriptions to events, and their deliveries."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field

from api.http.bodies import Done, Id, Page, PageQuery, RequestModel, Shown
from api.http.routing import PlatformDep, PrincipalDep, make_router
from db.deliveries import ListedDelivery
from db.webhooks import EventKind
from pipelines.errors import NotFound
from pipelines.webhooks.registration import WebhookChange, WebhookStatus
from pipelines.webhooks.targets import MAX_URL_CHARACTERS

router = make_router("webhooks", scope="webhooks")

Url = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]
Events = Annotated[list[EventKind], Field(min_length=1, max_length=50)]
Secret = Annotated[
    str,
    Field(
        min_length=8,
        max_length=256,
        description="Signing secret: `whsec_` and 24 to 64 bytes in base64, or any text.",
    ),
]
DeliveryStatus = Literal["pending", "delivered", "failed", "cancelled"]


class NewWebhook(RequestModel):
    url: Url
    events: Events
    secret: Secret | None = None


T = TypeVar("T")


def _not_null(value: Any) -> Any:
    # Null could mean "keep" or "remove"; a wrong guess would send messages without a signature.
    if value is None:
        raise ValueError("must not be null; omit it to keep the current value")
    return value


def _without_null(schema: dict[str, Any]) -> None:
    schema |= schema.pop("anyOf")[0]
    del schema["default"]


Changed = Annotated[T | None, BeforeValidator(_not_null), Field(json_schema_extra=_without_null)]
"""Field that keeps its value if it is omitted, and that may not be null."""


class ChangedWebhook(RequestModel):
    """Omitted fields keep their values; null is refused. A secret can be replaced, not removed.

    For 24 hours after a change, deliveries are signed with both the old and the new secret.
    """

    url: Changed[Url] = None
    events: Changed[Events] = None
    secret: Changed[Secret] = None
    status: Changed[WebhookStatus] = None


class ShownWebhook(Shown):
    id: Id
    url: str
    events: list[EventKind]
    status: WebhookStatus
    created_at: datetime


class WebhookList(BaseModel):
    webhooks: list[ShownWebhook]


class ShownAttempt(Shown):
    number: int
    status_code: int | None  # None if the receiver did not answer
    error: str | None
    milliseconds: int
    created_at: datetime


class ShownDelivery(Shown):
    id: Id
    event_id: str  # value of the header webhook-id
    event: EventKind
    status: DeliveryStatus
    attempts: list[ShownAttempt]
    next_attempt_at: datetime | None
    created_at: datetime


class DeliveryQuery(PageQuery):
    status: DeliveryStatus | None = None


def _id(text: str, message: str = "no webhook has that id") -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(message) from None


def _shown_delivery(listed: ListedDelivery) -> ShownDelivery:
    row = listed.delivery
    next_at = row.next_at if row.status == "pending" else None
    extras = {"event": listed.kind, "attempts": listed.attempts, "next_attempt_at": next_at}
    return ShownDelivery.model_validate({**row.model_dump(), **extras})


@router.post("/webhooks", status_code=201, summary="Create a webhook")
async def create_webhook(
    body: NewWebhook, principal: PrincipalDep, platform: PlatformDep
) -> ShownWebhook:
    await platform.request_limits.count_change(principal)
    webhook = await platform.webhooks.register(principal, body.url, body.events, body.secret)
    return ShownWebhook.model_validate(webhook)


@router.get("/webhooks", summary="List webhooks")
async def list_webhooks(principal: PrincipalDep, platform: PlatformDep) -> WebhookList:
    webhooks = await platform.webhooks.of_workspace(principal)
    return WebhookList(webhooks=[ShownWebhook.model_validate(webhook) for webhook in webhooks])


@router.get("/webhooks/{webhook_id}", summary="Get a webhook")
async def read_webhook(
    webhook_id: str, principal: PrincipalDep, platform: PlatformDep
) -> ShownWebhook:
    return ShownWebhook.model_validate(await platform.webhooks.get(principal, _id(webhook_id)))


@router.patch("/webhooks/{webhook_id}", summary="Change a webhook")
async def change_webhook(
    webhook_id: str, body: ChangedWebhook, principal: PrincipalDep, platform: PlatformDep
) -> ShownWebhook:
    await platform.request_limits.count_change(principal)
    change = WebhookChange(body.url, body.events, body.secret, body.status)
    changed = await platform.webhooks.change(principal, _id(webhook_id), change)
    return ShownWebhook.model_validate(changed)


@router.delete("/webhooks/{webhook_id}", summary="Delete a webhook")
async def delete_webhook(webhook_id: str, principal: PrincipalDep, platform: PlatformDep) -> Done:
    await platform.webhooks.delete(principal, _id(webhook_id))
    return Done(message="the webhook is deleted")


@router.get("/webhooks/{webhook_id}/deliveries", summary="List the deliveries of a webhook")
async def list_deliveries(
    webhook_id: str,
    principal: PrincipalDep,
    platform: PlatformDep,
    query: Annotated[DeliveryQuery, Query()],
) -> Page[ShownDelivery]:
    deliveries, total = await platform.webhooks.deliveries(
        principal, _id(webhook_id), query.page, query.limit, query.status
    )
    return query.answer([_shown_delivery(delivery) for delivery in deliveries], total)


@router.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", summary="Resend a delivery"
)
async def redeliver(
    webhook_id: str, delivery_id: str, principal: PrincipalDep, platform: PlatformDep
) -> ShownDelivery:
    webhook = _id(webhook_id)
    delivery = _id(delivery_id, "the webhook has no delivery with that id")
    await platform.request_limits.count_webhook_send(principal)
    return _shown_delivery(await platform.webhooks.redeliver(principal, webhook, delivery))


@router.post("/webhooks/{webhook_id}/test", summary="Send a sample event to a webhook")
async def test_webhook(
    webhook_id: str, principal: PrincipalDep, platform: PlatformDep, event: EventKind | None = None
) -> ShownDelivery:
    """Sends a sample of `event`. Default: the first event type that the webhook subscribes to."""
    identity = _id(webhook_id)
    await platform.request_limits.count_webhook_send(principal)
    return _shown_delivery(await platform.webhooks.test(principal, identity, event))
