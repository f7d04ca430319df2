"""Messages, their envelopes, and the rules that look into them."""
