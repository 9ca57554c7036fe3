"""Places of admission control between workspaces, and the routes that have them."""

from collections.abc import Callable

import pytest
from fastapi import FastAPI

from api.http.admission import REQUEST, AdmissionControl
from api.http.errors import ApiError
from api.http.routing import StrictRoute
from api.services import Services
from models.fairness.shares import CONTENDED_S
from tests.clock import Clock

PATH = "/tts-synthesize"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(services: Services, clock: Clock) -> AdmissionControl:
    """Eight places in a burst of 5 s, and four after it."""
    config = services.platform.request_limits.admission.model_copy(
        update={"work_per_core": {PATH: 8}, "lasting_per_core": {PATH: 4}, "burst_s": 5.0}
    )
    return AdmissionControl(config, cores=1, clock=clock)


def admitted(admission: AdmissionControl, workspace_id: int) -> list[Callable[[], None]]:
    """As many requests of a workspace as are let in."""
    ends = []
    while True:
        try:
            ends.append(admission.enter(PATH, workspace_id))
        except ApiError:
            return ends


def test_a_workspace_alone_may_take_every_place(admission: AdmissionControl) -> None:
    assert len(admitted(admission, 1)) == 8


def test_a_workspace_that_took_every_place_does_not_keep_another_out(
    admission: AdmissionControl,
) -> None:
    first = admitted(admission, 1)
    second = admitted(admission, 2)
    assert len(second) == 4
    for end in first:
        end()
    assert len(admitted(admission, 1)) == 4  # half, while the other uses the route


def test_two_flooding_workspaces_leave_places_to_a_third_and_a_fourth(
    admission: AdmissionControl,
) -> None:
    floods = [admitted(admission, one) for one in (1, 2)]
    assert [len(flood) for flood in floods] == [8, 4]
    assert [len(admitted(admission, one)) for one in (3, 4)] == [2, 2]
    assert not admitted(admission, 1) and not admitted(admission, 2)


def test_four_workspaces_that_share_every_place_leave_one_to_a_fifth(
    admission: AdmissionControl,
) -> None:
    for _ in range(2):
        for one in (1, 2, 3, 4):
            admission.enter(PATH, one)
    assert not any(admitted(admission, one) for one in (1, 2, 3, 4))
    fifth = admitted(admission, 5)
    assert len(fifth) == 1
    assert not admitted(admission, 6)  # an eighth of the places, not one for each that comes
    fifth[0]()
    assert len(admitted(admission, 6)) == 1


def test_four_workspaces_leave_a_place_of_a_slow_route_to_a_fifth(
    services: Services, clock: Clock
) -> None:
    """As one with whole answers on two cores does: four accounts had speech refused for others."""
    config = services.platform.request_limits.admission.model_copy(
        update={"work_per_core": {PATH: 32}, "lasting_per_core": {PATH: 2}, "burst_s": 1.0}
    )
    admission = AdmissionControl(config, cores=1, clock=clock)
    floods = {one: admitted(admission, one) for one in (1, 2, 3, 4)}
    clock.now += 2
    for one, ends in floods.items():
        for end in ends:
            end()
        admitted(admission, one)
    assert len(admitted(admission, 5)) == 1


def test_long_held_places_are_shared_with_the_next_workspace(
    admission: AdmissionControl, clock: Clock
) -> None:
    admitted(admission, 1)
    clock.now += CONTENDED_S + 1
    assert len(admitted(admission, 2)) == 2  # half of what is admitted after the burst


def test_a_flood_does_not_refuse_a_steady_client_after_the_burst(
    admission: AdmissionControl, clock: Clock
) -> None:
    refused = 0
    flood = admitted(admission, 1)
    for _ in range(100):
        clock.now += 0.5
        try:
            end = admission.enter(PATH, 2)
        except ApiError:
            refused += 1
        else:
            end()
        flood.pop()()
        flood += admitted(admission, 1)
        assert flood
    assert refused == 0


def test_a_workspace_has_every_place_again_a_minute_after_the_others_left(
    admission: AdmissionControl, clock: Clock
) -> None:
    for end in admitted(admission, 2):
        end()
    ends = admitted(admission, 1)
    assert len(ends) == 4
    for end in ends:
        end()
    clock.now += CONTENDED_S + 1
    assert len(admitted(admission, 1)) == 8


def test_places_are_free_after_every_workspace_has_left(admission: AdmissionControl) -> None:
    for workspace_id in range(50):
        for end in admitted(admission, workspace_id):
            end()
    limit = admission._kinds[PATH]
    assert (limit._count, len(limit._shares.holders)) == (0, 0)
    assert len(limit._recent._came) <= 2


def test_a_place_is_held_from_the_body_to_the_answer(
    admission: AdmissionControl,
) -> None:
    working = admission._kinds[PATH]
    sending = admission._sending[PATH]
    place = admission.place(PATH, 1)
    place.check()
    assert working._count == 0
    for _ in range(2):
        place.take()
        assert working._count == 1
    place.step_aside()
    assert working._count == 0
    place.take()
    place.begin_sending()
    assert (working._count, sending._count) == (0, 1)
    place.take()
    assert working._count == 0
    place.leave()
    assert sending._count == 0


def test_a_place_is_kept_where_too_many_answers_are_only_sent(admission: AdmissionControl) -> None:
    while admission.enter_sending(PATH, 2) is not None:
        pass
    place = admission.place(PATH, 2)
    place.take()
    place.begin_sending()
    assert admission._kinds[PATH]._count == 1
    place.leave()
    assert admission._kinds[PATH]._count == 0


def test_every_post_that_makes_a_model_work_has_places(app: FastAPI, services: Services) -> None:
    """Of all dialects: a new route of these scopes without an entry fails here."""
    listed = services.platform.request_limits.admission.work_per_core
    posts = {
        route.path_format
        for route in app.routes
        if isinstance(route, StrictRoute)
        and "POST" in (route.methods or ())
        and route.include_in_schema
        if {*route.required_scopes[:1]} & {"tts", "stt", "chat", "voices"}
    }
    assert {"/tts-synthesize", "/tts/v1/voice", "/openai/v1/audio/speech"} <= posts
    assert posts <= set(listed), f"configs/admission.yaml lacks {sorted(posts - set(listed))}"
    assert all(isinstance(route, StrictRoute) for route in app.routes if hasattr(route, "tags"))


def test_workspaces_with_many_requests_leave_some_to_the_next(services: Services) -> None:
    config = services.platform.request_limits.admission
    admission = AdmissionControl(config.model_copy(update={"requests": 16}))

    def flood(workspace_id: int) -> int:
        count = 0
        while True:
            leave = admission.enter(REQUEST)
            try:
                admission.enter_caller(workspace_id)
            except ApiError as refusal:
                leave()
                assert refusal.code == "concurrency_limit"
                return count
            count += 1

    assert [flood(one) for one in (1, 2, 3, 4)] == [8, 4, 2, 1]
    admission.enter(REQUEST)
    admission.enter_caller(5)


def test_requests_without_a_key_from_many_addresses_leave_half_of_the_places(
    services: Services,
) -> None:
    config = services.platform.request_limits.admission
    admission = AdmissionControl(config.model_copy(update={"requests": 20}))
    ends = [admission.enter_caller(f"10.0.0.{number}") for number in range(10)]
    for _ in range(2):  # a refusal takes no place of the address
        with pytest.raises(ApiError, match="overloaded"):
            admission.enter_caller("10.0.0.99")
    admission.enter_caller(1)()
    ends[0]()
    admission.enter_caller("10.0.0.99")()
    for end in ends[1:]:
        end()
    assert not admission._callers
