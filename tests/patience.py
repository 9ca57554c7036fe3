"""How long tests wait for what must come. It only ends tests that hang, and says nothing about how
quick the service is: a machine under load needs many times what an idle one does."""

PATIENCE_S = 60.0
