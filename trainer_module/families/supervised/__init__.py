"""The tasks that learn a label from columns: tasks, models, losses and trees."""
