//! The zopp command line.
