// What all of them were built from.
const char prebuilt_digest[] = PREBUILT_DIGEST;
