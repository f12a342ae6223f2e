/* A stand-in for libnvidia-ml.so.1 that plays the scenario in the file named by STUB_NVML, read anew at each call:
 *
 *   gpus N                          how many devices there are
 *   error FUNCTION CODE [INDEX]     that function fails, for all devices or for one
 *   hang FUNCTION                   that function never returns
 *   set KEY NUMBER                  a quantity of every device (defaults below)
 *   instance INDEX PLACE GI CI SMS MIB PROFILE   an instance of that device, at that place (`set mig 1` says that it has any)
 *   process INDEX PID BYTES MPS GI CI NAME…   a compute process; NAME may hold \xNN
 *
 * Compiled with -DOLD it is a library from before driver 510: no third version of the lists, no event reasons.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int ret_t;
typedef struct { int index; int gi, ci, sms; unsigned long long mib; char profile[32]; } device_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process_t;

static device_t devices[16], instances[7]; /* an instance's index is 100 + 10 * the device's + its place */
static int initialised;

static FILE *scenario(void) {
    const char *path = getenv("STUB_NVML");
    return path ? fopen(path, "r") : NULL;
}

static ret_t fate(const char *function, int index) {
    char line[4096], word[64], name[128];
    ret_t code = 0;
    FILE *file = scenario();
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        int value = 0, only = -1, n = sscanf(line, "%63s %127s %d %d", word, name, &value, &only);
        if (n < 2 || strcmp(name, function)) continue;
        if (!strcmp(word, "hang")) { fclose(file); for (;;) sleep(1000); }
        if (!strcmp(word, "error") && n >= 3 && (only < 0 || only == index)) code = value;
    }
    fclose(file);
    if (!code && !initialised && strncmp(function, "nvmlInit", 8)) code = 1;
    return code;
}

static unsigned long long setting(const char *key, unsigned long long fallback) {
    char line[4096], word[64], name[128];
    unsigned long long value, found = fallback;
    FILE *file = scenario();
    if (!file) return fallback;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %llu", word, &value) == 2 && !strcmp(word, key)) found = value;
        if (sscanf(line, "%63s %127s %llu", word, name, &value) == 3 && !strcmp(word, "set") && !strcmp(name, key)) found = value;
    }
    fclose(file);
    return found;
}

static void unescape(const char *from, char *to, unsigned size) {
    unsigned n = 0;
    while (*from && *from != '\n' && n + 1 < size) {
        unsigned byte;
        if (from[0] == '\\' && from[1] == 'x' && sscanf(from + 2, "%2x", &byte) == 1) { to[n++] = (char)byte; from += 4; }
        else to[n++] = *from++;
    }
    to[n] = 0;
}

static ret_t processes(const char *function, device_t *device, unsigned *count, process_t *rows, int managed_only) {
    ret_t code = fate(function, device->index);
    if (code) return code;
    char line[4096];
    unsigned n = 0, room = *count;
    FILE *file = scenario();
    while (file && fgets(line, sizeof line, file)) {
        int index, mps;
        process_t row;
        if (sscanf(line, "process %d %u %llu %d %u %u", &index, &row.pid, &row.memory, &mps, &row.gi, &row.ci) != 6) continue;
        if (index != device->index || (managed_only && !mps)) continue;
        if (rows && n < room) rows[n] = row;
        n++;
    }
    if (file) fclose(file);
    *count = n;
    return rows ? (n > room ? 7 : 0) : (n ? 7 : 0);
}

ret_t nvmlInitWithFlags(unsigned flags) { (void)flags; ret_t code = fate("nvmlInit", -1); if (!code) initialised++; return code; }
ret_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ret_t nvmlShutdown(void) { ret_t code = fate("nvmlShutdown", -1); if (!code) initialised = 0; return code; }
const char *nvmlErrorString(ret_t code) { (void)code; return "stub error"; }

static ret_t text(const char *function, int index, const char *value, char *out, unsigned size) {
    ret_t code = fate(function, index);
    if (!code) snprintf(out, size, "%s", value);
    return code;
}

ret_t nvmlSystemGetDriverVersion(char *out, unsigned size) { return text("nvmlSystemGetDriverVersion", -1, "580.159.04", out, size); }
ret_t nvmlDeviceGetName(device_t *device, char *out, unsigned size) {
    char value[64];
    if (device->index < 100) return text("nvmlDeviceGetName", device->index, "NVIDIA H200", out, size);
    snprintf(value, sizeof value, "NVIDIA H200 MIG %s", device->profile);
    return text("nvmlDeviceGetName", device->index, value, out, size);
}

ret_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    ret_t code = fate("nvmlSystemGetProcessName", -1);
    char line[4096];
    FILE *file = code ? NULL : scenario();
    while (file && fgets(line, sizeof line, file)) {
        unsigned listed; int start = 0;
        if (sscanf(line, "process %*d %u %*u %*d %*u %*u %n", &listed, &start) >= 1 && listed == pid && start) {
            unescape(line + start, out, size);
            fclose(file);
            return 0;
        }
    }
    if (file) fclose(file);
    return code ? code : 6;
}

ret_t nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)setting("gpus", 1); return fate("nvmlDeviceGetCount", -1); }

ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    ret_t code = fate("nvmlDeviceGetHandleByIndex", (int)index);
    if (index >= 16) return 2;
    devices[index].index = (int)index;
    *device = &devices[index];
    return code;
}

ret_t nvmlDeviceGetUUID(device_t *device, char *out, unsigned size) {
    char value[64];
    if (device->index >= 100) snprintf(value, sizeof value, "MIG-%08d-2601-5eeb-c6aa-b59b83ed0aa6", device->index);
    else snprintf(value, sizeof value, "GPU-0000000%d-2601-5eeb-c6aa-b59b83ed0aa6", device->index);
    return text("nvmlDeviceGetUUID", device->index, value, out, size);
}

ret_t nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor) {
    *major = (int)setting("major", 9); *minor = (int)setting("minor", 0);
    return fate("nvmlDeviceGetCudaComputeCapability", device->index);
}

#define NUMBER(function, type, key, fallback) \
    ret_t function(device_t *device, type *out) { *out = (type)setting(key, fallback); return fate(#function, device->index); }

NUMBER(nvmlDeviceGetNumGpuCores, unsigned, "cores", 16896)
NUMBER(nvmlDeviceGetComputeMode, unsigned, "compute_mode", 0)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power", 133120)
#ifndef OLD
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "reasons", 4)
#endif
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "reasons", 4)

ret_t nvmlDeviceGetMigMode(device_t *device, unsigned *current, unsigned *pending) {
    *current = *pending = (unsigned)setting("mig", 0);
    return fate("nvmlDeviceGetMigMode", device->index);
}

ret_t nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned *count) {
    *count = (unsigned)setting("max_mig", 7);
    return fate("nvmlDeviceGetMaxMigDeviceCount", device->index);
}

ret_t nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned place, device_t **instance) {
    ret_t code = fate("nvmlDeviceGetMigDeviceHandleByIndex", device->index);
    char line[4096];
    int found = 0;
    if (code) return code;
    if (place >= 7) return 2;
    FILE *file = scenario();
    while (file && fgets(line, sizeof line, file)) {
        device_t made;
        int index, at;
        if (sscanf(line, "instance %d %d %d %d %d %llu %31s", &index, &at, &made.gi, &made.ci, &made.sms, &made.mib, made.profile) != 7) continue;
        if (index != device->index || at != (int)place) continue;
        made.index = 100 + 10 * index + at;
        instances[place] = made;
        found = 1;
    }
    if (file) fclose(file);
    *instance = &instances[place];
    return found ? 0 : 6;
}

ret_t nvmlDeviceGetGpuInstanceId(device_t *device, unsigned *out) { *out = (unsigned)device->gi; return fate("nvmlDeviceGetGpuInstanceId", device->index); }
ret_t nvmlDeviceGetComputeInstanceId(device_t *device, unsigned *out) { *out = (unsigned)device->ci; return fate("nvmlDeviceGetComputeInstanceId", device->index); }

typedef struct { unsigned sms, rest[7]; unsigned long long mib; } attributes_t;
ret_t nvmlDeviceGetAttributes_v2(device_t *device, attributes_t *out) {
    memset(out, 0, sizeof *out);
    out->sms = (unsigned)device->sms; out->mib = device->mib;
    return fate("nvmlDeviceGetAttributes_v2", device->index);
}

ret_t nvmlDeviceGetTemperature(device_t *device, int sensor, unsigned *out) {
    (void)sensor; *out = (unsigned)setting("temperature", 39);
    return fate("nvmlDeviceGetTemperature", device->index);
}

ret_t nvmlDeviceGetClockInfo(device_t *device, int type, unsigned *out) {
    *out = (unsigned)(type == 2 ? setting("memory_clock", 3201) : setting("sm_clock", 1980));
    return fate("nvmlDeviceGetClockInfo", device->index);
}

ret_t nvmlDeviceGetUtilizationRates(device_t *device, unsigned *out) {
    out[0] = (unsigned)setting("utilization", 2); out[1] = 0;
    return fate("nvmlDeviceGetUtilizationRates", device->index);
}

ret_t nvmlDeviceGetMemoryInfo(device_t *device, unsigned long long *out) {
    out[0] = setting("total", 150754820096ULL); out[1] = setting("free", 148001259520ULL); out[2] = setting("used", 2753560576ULL);
    return fate("nvmlDeviceGetMemoryInfo", device->index);
}

#ifndef OLD
ret_t nvmlDeviceGetMemoryInfo_v2(device_t *device, unsigned long long *out) {
    out[1] = setting("total", 150754820096ULL); out[2] = setting("reserved", 645922816ULL);
    out[3] = setting("free", 148001259520ULL); out[4] = setting("used", 2107637760ULL);
    return fate("nvmlDeviceGetMemoryInfo", device->index);
}
ret_t nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, unsigned *count, process_t *rows) {
    return processes("nvmlDeviceGetComputeRunningProcesses", device, count, rows, 0);
}
ret_t nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t *device, unsigned *count, process_t *rows) {
    return processes("nvmlDeviceGetMPSComputeRunningProcesses", device, count, rows, 1);
}
#endif
ret_t nvmlDeviceGetComputeRunningProcesses_v2(device_t *device, unsigned *count, process_t *rows) {
    return processes("nvmlDeviceGetComputeRunningProcesses", device, count, rows, 0);
}
ret_t nvmlDeviceGetMPSComputeRunningProcesses_v2(device_t *device, unsigned *count, process_t *rows) {
    return processes("nvmlDeviceGetMPSComputeRunningProcesses", device, count, rows, 1);
}
