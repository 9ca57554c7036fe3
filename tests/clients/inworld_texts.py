"""What the programs of .venv-clients say, and what their tests expect to hear."""

SENTENCE = "The weather is nice today."
LETTER = "Dear Dr. Smith, it costs 5 euros. Shall we go to the park? Yes, we shall."
LONG = " ".join(f"This is sentence number {number} of a long speech." for number in range(60))
