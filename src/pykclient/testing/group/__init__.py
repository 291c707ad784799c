"""Consumer groups on the broker's side: who is a member, what was committed, and how both outlive a broker."""
