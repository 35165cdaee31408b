"""An exported model to whoever asks it: its loading, and what it takes and gives."""
