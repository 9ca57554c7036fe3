"""The contract of every chat engine, with vLLM and a small real model."""

import pytest

# To start takes a minute: three processes import vLLM.
pytestmark = [pytest.mark.vllm, pytest.mark.weights, pytest.mark.timeout(1200)]
pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` runs these tests")

from tests.models.llm.test_contract import (  # noqa: E402, F401 with the fixture of this folder
    test_a_prompt_longer_than_the_context_is_refused_before_the_first_delta,
    test_a_raw_prompt_is_continued,
    test_an_answer_cut_by_max_tokens_finishes_with_length,
    test_an_engine_declares_its_context_and_languages,
    test_closing_a_generation_early_keeps_the_engine_usable,
    test_concurrent_answers_do_not_mix,
    test_every_delta_has_a_usage_that_never_decreases,
    test_penalties_of_repetition_are_taken,
    test_the_last_delta_has_the_finish_reason_and_the_usage,
)
