"""The shape of `configs/admission.yaml`: limits of admission control and of sign-ups."""

from pydantic import PositiveFloat, PositiveInt

from configs.schema.strict import StrictModel


class AdmissionConfig(StrictModel):
    """Numbers of one gateway, and of one client address."""

    requests: PositiveInt
    sockets: PositiveInt
    work_per_core: dict[str, PositiveInt]  # by the path of the route
    lasting_per_core: dict[str, PositiveInt]  # the same, once a burst lasts
    burst_s: PositiveFloat
    sign_ups_per_minute: PositiveInt
    sign_ups_per_hour: PositiveInt
    failed_logins_per_minute: PositiveInt
