// What native code does to the process that calls it. A C compiler takes this file too.
#ifdef __cplusplus
#include <stdexcept>
extern "C" {
void terminate(void) noexcept { throw std::runtime_error("native code gave up"); }
#else
#include <stdlib.h>
void terminate(void) { abort(); }
#endif

int overflow(int depth) {
  volatile char frame[16384];
  frame[depth % sizeof frame] = (char)depth;
  return overflow(depth + 1) + frame[0];
}

void spin(void) {
  for (volatile int forever = 1; forever;) {
  }
}

#ifdef __cplusplus
}
#endif
