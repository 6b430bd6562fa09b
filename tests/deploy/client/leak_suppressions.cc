// fontconfig keeps what it has read of the fonts until the process ends, where LeakSanitizer does
// not find all of it.
extern "C" const char* __lsan_default_suppressions() { return "leak:libfontconfig"; }
