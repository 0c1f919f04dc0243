"""What is counted: messages put and got by topic and group, and rates. Pure: time is passed in."""
