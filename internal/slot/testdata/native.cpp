// What native code does to the process that calls it. A C compiler takes this file too.
#include <unistd.h>
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

// The caller waits in the kernel until a child that has left its group gives its memory back, which it never does.
void borrow(void) {
  if (vfork() == 0) {
    setsid();
    for (;;) {
      pause();
    }
  }
}

#ifdef __cplusplus
}
#endif
