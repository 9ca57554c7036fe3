"""The schemas of `configs/{plans,admission,sockets,retention}.yaml`: prices and limits."""

from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from configs.schema.base import StrictModel


class PlanLimits(StrictModel):
    """Rate and concurrency limits of one workspace."""

    requests_per_minute: int = Field(ge=1)
    concurrent_websockets: int = Field(ge=1)
    custom_voices: int = Field(ge=0)
    jobs: int = Field(default=1, ge=0)  # unfinished jobs
    saved_chats_mb: int = Field(ge=1)  # 10^6 bytes, as stored
    storage_gb: int = Field(ge=1)  # 10^9 bytes of files and saved chats


class ChatBounds(StrictModel):
    """The maximum size of a saved chat, on every plan."""

    messages: int = Field(ge=2)
    mb: int = Field(ge=1)  # 10^6 bytes, as stored


class PlanConfig(StrictModel):
    """One plan."""

    id: str
    name: str
    price: int = Field(ge=0)  # USD per month
    limits: PlanLimits
    features: tuple[str, ...]  # the limits in words, for people


class Prices(StrictModel):
    """Prices of usage, in micro-USD per unit."""

    chat_token: int = Field(ge=0)
    tts_character: int = Field(ge=0)
    tts_letters: int = Field(default=3, ge=3)  # spoken letters that cost as much as one character
    stt_second: int = Field(ge=0)
    custom_voice: int = Field(ge=0)
    embedding_thousand_tokens: int = Field(ge=0)
    # Unfinished answers per workspace and hour that are free when clients leave; more are charged.
    free_hangups_per_hour: int = Field(default=20, ge=0)


class PlansConfig(StrictModel):
    """All plans; a new workspace gets the first."""

    owner: PlanConfig  # replaces the plan of the workspace `free_workspace_id`
    free_workspace_id: int | None = None  # set by `load_plans` from the settings, not by the file
    signup_credit: int = Field(ge=0)  # micro-USD
    prices: Prices
    chat: ChatBounds
    plans: tuple[PlanConfig, ...] = Field(min_length=1)

    @property
    def first(self) -> PlanConfig:
        return self.plans[0]

    def limits_of(self, plan_id: str, *, is_owner: bool = False) -> PlanLimits:
        """The limits of the plan, or of the first plan when the plan no longer exists."""
        return (self.owner if is_owner else self.find(plan_id) or self.first).limits

    def find(self, plan_id: str) -> PlanConfig | None:
        return next((plan for plan in self.plans if plan.id == plan_id), None)


class SlowClients(StrictModel):
    """Limits of slow clients, for bodies and responses; times in seconds."""

    json_s: PositiveFloat = 10.0  # time for a JSON body
    upload_s: PositiveFloat = 60.0  # time for a form, plus its size divided by the rate below
    upload_bytes_per_s: PositiveFloat = 125_000.0  # 1 Mbit/s
    send_timeout_s: PositiveFloat = 10.0  # window over which a response must keep the pace below
    send_bytes_per_s: PositiveFloat = 2000.0  # below the lowest bit rate of speech
    send_total_s: PositiveFloat = 1200.0  # longest total wait of a response for its reader


class AdmissionConfig(StrictModel):
    """Admission control: limits of one gateway, and of one client address."""

    requests: PositiveInt
    sockets: PositiveInt
    uploads_mb: PositiveInt = 2048  # MiB of forms with files
    json_mb: PositiveInt = 128  # MiB of JSON bodies
    work_per_core: dict[str, PositiveInt]  # concurrent work per core, by the path of the route
    lasting_per_core: dict[str, PositiveInt]  # limit after an overload of `burst_s`
    burst_s: PositiveFloat
    sign_ups_per_minute: PositiveInt
    sign_ups_per_hour: PositiveInt
    failed_logins_per_minute: PositiveInt
    failed_logins_per_hour: PositiveInt = 300
    failed_logins_per_account_and_hour: PositiveInt
    failed_logins_per_known_account_and_hour: PositiveInt = 100
    failed_logins_per_block_and_hour: PositiveInt = 3
    unknown_keys_per_minute: PositiveInt = 30
    requests_per_address: PositiveInt = 100  # requests in progress at routes that need no key
    connections_per_address: PositiveInt = 1000
    webhook_sends_per_minute: PositiveInt = 30  # tests and redeliveries of one workspace
    polls_per_request: PositiveInt = 10  # factor of the plan's rate, for polls of queued work
    changes_per_hour: PositiveInt = 200  # of keys, webhooks and settings by one workspace
    slow_clients: SlowClients = SlowClients()


class SocketLimits(StrictModel):
    """Limits of WebSocket sessions; times in seconds."""

    idle_s: PositiveFloat
    session_s: PositiveFloat
    handshake_s: PositiveFloat
    send_timeout_s: PositiveFloat
    outbox_bytes: PositiveInt
    faults: PositiveInt
    flood_window_s: PositiveFloat
    messages_per_s: PositiveFloat
    recheck_s: PositiveFloat
    drain_s: float = Field(ge=0)
    stop_s: float = Field(ge=0)


class RetentionConfig(StrictModel):
    """Retention times in days."""

    chat_days: int | None = Field(ge=1)  # since a chat was last used; None: without limit
    event_days: int = Field(ge=4)  # bodies of events; deliveries are attempted for four days
    failed_voice_days: int = Field(default=30, ge=1)  # since the failure
    job_days: int = Field(default=30, ge=1)  # since a job ended
    upload_days: int = Field(default=1, ge=1)  # since an incomplete upload began
    revoked_key_days: int = Field(default=90, ge=1)  # time for which its use is audited
    session_days: int = Field(default=30, ge=1)  # since a login's session ended
    delivery_days: int  # events and their deliveries; at least `event_days`

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.delivery_days < self.event_days:
            raise ValueError("delivery_days: must not be less than event_days")
        return self
