"""The Pusher, which pushes versions atomically, and the functions that read and check versions."""
