"""The process of a server, or several behind one socket."""
