"""The versions of a pipeline's model: what there is, going back to one, giving up one, deleting."""
