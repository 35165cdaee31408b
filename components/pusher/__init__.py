"""A Pusher that puts versions in place atomically, and the versions themselves."""
