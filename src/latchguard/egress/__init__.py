"""The guard at the exit: rules by area, profiles, and `harden`, which runs them over one outbound body."""
