/* The few calls of the CUDA driver that tasks.py makes, for the rehearsal: memory that only the NVML of gputest knows of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BLOCKS 4096

/* A context is as large as on the largest devices. */
static unsigned long long context = 528ull << 20, blocks[MAX_BLOCKS];
static int count;

/* tell writes what this process holds to where the NVML of gputest reads it. */
static int tell(void)
{
	const char *state = getenv("IMITATED_NVML"), *uuid = getenv("CUDA_VISIBLE_DEVICES");
	unsigned long long sum = context;
	char path[4096], tmp[4200];
	FILE *file;

	if (!uuid)
		return 100; /* no device */
	if (!state)
		return 0; /* nobody looks */
	for (int i = 0; i < count; i++)
		sum += blocks[i];
	snprintf(path, sizeof path, "%s.d/%d", state, (int)getpid());
	snprintf(tmp, sizeof tmp, "%s.tmp.%d", state, (int)getpid());
	if (!(file = fopen(tmp, "w")))
		return 999;
	fprintf(file, "%s %llu\n", uuid, sum);
	return fclose(file) || rename(tmp, path) ? 999 : 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **made, int device) { *made = &context + device; return tell(); }
int cuCtxSetCurrent(void *chosen) { return chosen == &context ? 0 : 201; }

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
	int free = 0;

	while (free < count && blocks[free])
		free++;
	if (free == MAX_BLOCKS)
		return 2;
	if (free == count)
		count++;
	blocks[free] = bytes;
	*pointer = (unsigned long long)free + 1;
	return tell();
}

int cuMemFree_v2(unsigned long long pointer)
{
	if (pointer < 1 || pointer > (unsigned long long)count)
		return 1;
	blocks[pointer - 1] = 0;
	return tell();
}
