/* Estimates pi: ./pi POINTS reads a seed (a JSON number) from standard input, throws POINTS random points at a square and
   prints {"seed":…,"pi":…}. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* xorshift64*: a small generator whose whole state is one number. */
static double next(uint64_t *state) {
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (double)(*state * UINT64_C(2685821657736338717) >> 11) / (double)(UINT64_C(1) << 53);
}

int main(int argc, char **argv) {
	long long points = argc == 2 ? atoll(argv[1]) : 0;
	uint64_t seed;
	if (points < 1) {
		fprintf(stderr, "usage: pi POINTS, with a seed on standard input\n");
		return 2;
	}
	if (scanf("%" SCNu64, &seed) != 1) {
		fprintf(stderr, "the item is not a whole number\n");
		return 1;
	}
	uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	long long inside = 0;
	for (long long i = 0; i < points; i++) {
		double x = next(&state), y = next(&state);
		inside += x * x + y * y < 1;
	}
	printf("{\"seed\":%" PRIu64 ",\"pi\":%.6f}\n", seed, 4 * (double)inside / (double)points);
	return 0;
}
