// An ordinary library.
extern "C" int answer() { return 42; }
