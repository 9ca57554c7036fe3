"""The timeout of waits in tests. It only ends tests that hang and is no limit of latency, since a
machine under load needs many times as long as an idle one."""

PATIENCE_S = 60.0
