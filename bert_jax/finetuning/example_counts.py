"""The numbers of examples at which fine-tuning changes what it does, each with what was measured.

Without another note, the model was a 6-layer MiniLM.
"""

# Folds. With FOLDS_BELOW or more a split loses little, and folds would take long.
DEFAULT_FOLDS = 5
FOLDS_BELOW = 2_000
MIN_CALIBRATION_EXAMPLES = 25  # that a calibration needs
MIN_CURVE_EXAMPLES = 40  # for a learning curve: with fewer, a quarter of them teaches nothing

# The method. Below CONTRASTIVE_BELOW examples of each class, contrastive training was ahead of fine-tuning at the same
# rate.
CONTRASTIVE_BELOW = 256
# Pairs of each class, if the texts of a pair are encoded separately: with 8 and 16 pairs of MRPC fine-tuning (accuracy
# 0.635, 0.652) was behind the probe (0.696, 0.677), and folds of so few pairs do not show it; with 256 it was ahead
# (0.717, 0.687).
PROBE_BELOW = 64
# One fold chooses the method from ONE_FOLD_FROM examples on, for with fewer it would choose by chance, and below
# ONE_FOLD_BELOW of each class: with 256 and 512 of ten emotions contrastive training was three points ahead of
# fine-tuning, with 1,200 of SST-2's two classes two points behind.
ONE_FOLD_FROM = 1_000
ONE_FOLD_BELOW = 1_000

# The learning rate of contrastive training: for up to FEW_TEXTS texts, that of fine-tuning is best; for more, up to
# MAX_RATE_FACTOR times that rate. 16 and 32 texts of SST-2 lost two to three points of accuracy at 2.5 times the rate,
# and 80 to 160 texts of SST-2 and GoEmotions gained one to six.
FEW_TEXTS, MAX_RATE_FACTOR = 32, 2.5

MAX_PROBE_EXAMPLES = 10_000  # texts or windows that a probe is fitted to, if fine-tuning follows
