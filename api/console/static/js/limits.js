// Limits of the API, which pages state before a request would exceed them. A test compares them.
export const PASSWORD_CHARACTERS = 8; // at least
export const HISTORY_DAYS = 90; // of speech, at most
export const FILE_CHARACTERS = 5000; // of speech in a file
export const SOCKET_CHARACTERS = 50_000; // of speech over a socket
export const CORRECTION_CHARACTERS = 20_000;
export const RECORDING_MB = 25; // MiB of a file to transcribe
export const RECORDING_MINUTES = 10;
export const SCRIPT_LINES = 100;
export const DICTIONARIES = 5; // of pronunciations, that a request names
export const DICTIONARY_VERSIONS = 10; // that are kept
export const JOB_HOURS = 12; // of a recording
export const PART_MB = 64; // MiB of a part of a recording
export const MOST_PARTS = 64;
export const DOCUMENT_MB = 50; // MiB of a text for a job
export const JOB_CHARACTERS = 2_000_000; // of a text
