"""The shipped chat model, small, for tests of its engine."""

from configs.schema.models.llm import LlamaCppConfig

SMOLLM = LlamaCppConfig(
    engine="llama_cpp",
    id="test",
    owned_by="test",
    created=0,
    languages=("en",),
    weights="smollm2-135m-q4",
    context_tokens=1024,
    parallel=1,
    threads=1,
)
