"""The certification of a blessed model: the predictions of all interfaces have to agree."""
