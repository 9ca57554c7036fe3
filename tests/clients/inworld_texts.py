"""The texts that the scripts of .venv-clients synthesise and their tests expect."""

SENTENCE = "The weather is nice today."
LETTER = "Dear Dr. Smith, it costs 5 euros. Shall we go to the park? Yes, we shall."
LONG = " ".join(f"This is sentence number {number} of a long speech." for number in range(60))
