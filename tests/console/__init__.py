"""The console's page: texts and size in pytest, behaviour in a real Chromium."""
