"""Binary convolutions whose training keeps bits: signs and masks instead of floats."""
