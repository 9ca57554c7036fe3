"""The shape of `configs/plans.yaml`: prices and limits of plans, and prices of usage."""

from pydantic import Field

from configs.schema.strict import StrictModel


class PlanLimits(StrictModel):
    """Rate and concurrency limits of one workspace."""

    requests_per_minute: int = Field(ge=1)
    concurrent_websockets: int = Field(ge=1)
    custom_voices: int = Field(ge=0)


class PlanConfig(StrictModel):
    """One plan."""

    id: str
    name: str
    price: int = Field(ge=0)  # USD a month
    limits: PlanLimits
    features: tuple[str, ...]  # the limits in words, for people


class Prices(StrictModel):
    """Prices of usage, in micro-USD a unit."""

    chat_token: int = Field(ge=0)
    tts_character: int = Field(ge=0)
    stt_second: int = Field(ge=0)
    custom_voice: int = Field(ge=0)


class PlansConfig(StrictModel):
    """All plans; the first is the one that a new workspace gets."""

    signup_credit: int = Field(ge=0)  # micro-USD
    prices: Prices
    plans: tuple[PlanConfig, ...] = Field(min_length=1)

    @property
    def first(self) -> PlanConfig:
        return self.plans[0]

    def limits_of(self, plan_id: str) -> PlanLimits:
        """Those of the first plan when the id is that of a plan which is gone."""
        for plan in self.plans:
            if plan.id == plan_id:
                return plan.limits
        return self.first.limits

    def find(self, plan_id: str) -> PlanConfig | None:
        return next((plan for plan in self.plans if plan.id == plan_id), None)
