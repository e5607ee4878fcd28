#include "bench/watch_sensors.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sysinfo.h"

/* The number that a file holds; false when it cannot be read. */
static bool read_number(const char *path, double *value)
{
    char text[64], *end;
    if (!sysinfo_read(path, text, sizeof text)) return false;
    *value = strtod(text, &end);
    return end != text;
}

/* Sums the numbers of all files that match; returns how many there were. */
static int sum_of(const char *pattern, double *sum)
{
    glob_t found;
    int count = 0;
    *sum = 0;
    if (glob(pattern, 0, NULL, &found) != 0) return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        double value;
        if (!read_number(found.gl_pathv[i], &value)) continue;
        *sum += value;
        count++;
    }
    globfree(&found);
    return count;
}

double sensors_energy(double *range, const char **reason)
{
    /* Packages are intel-rapl:N on AMD too; what has a second colon is part of a package. */
    static const char folder[] = "/sys/class/powercap/intel-rapl:[0-9]";
    char pattern[128];
    double microjoules;
    snprintf(pattern, sizeof pattern, "%s/energy_uj", folder);
    const char *why = NULL;
    int count = sum_of(pattern, &microjoules);
    if (count == 0) {
        int probe = open("/sys/class/powercap/intel-rapl:0/energy_uj", O_RDONLY | O_CLOEXEC);
        why = probe < 0 && errno == EACCES ? "energy counters (RAPL) are for root only here"
                                           : "this machine shows no energy counters (RAPL)";
        if (probe >= 0) close(probe);
    }
    if (reason) *reason = why;
    *range = (double)NAN;
    if (count == 0) return (double)NAN;
    snprintf(pattern, sizeof pattern, "%s/max_energy_range_uj", folder);
    if (sum_of(pattern, range) > 0) *range *= 1e-6;
    return microjoules * 1e-6;
}

double sensors_energy_between(double before, double after, double range)
{
    double joules = after - before;
    return joules < 0 ? joules + range : joules;
}

double sensors_clock_mhz(void)
{
    double sum;
    int count = sum_of("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq", &sum);
    if (count) return sum / count / 1000;
    enum { TEXT_MAX = 65536 };
    char *text = malloc(TEXT_MAX);
    sum = 0;
    bool known = text && sysinfo_read("/proc/cpuinfo", text, TEXT_MAX);
    for (const char *at = known ? text : ""; (at = strstr(at, "cpu MHz")); at++) {
        const char *colon = strchr(at, ':');
        if (!colon) break;
        sum += strtod(colon + 1, NULL);
        count++;
    }
    free(text);
    return count ? sum / count : (double)NAN;
}

long long sensors_throttle_count(void)
{
    double sum;
    int count = sum_of("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count", &sum);
    return count ? (long long)sum : -1;
}

double sensors_temperature(char *name, size_t size)
{
    static const char *const chips[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz"};
    double hottest = (double)NAN;
    glob_t found;
    if (size) name[0] = '\0';
    if (glob("/sys/class/hwmon/hwmon*/temp*_input", 0, NULL, &found) != 0) return hottest;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char path[512], chip[64];
        double value;
        const char *slash = strrchr(found.gl_pathv[i], '/');
        snprintf(path, sizeof path, "%.*s/name", (int)(slash - found.gl_pathv[i]),
                 found.gl_pathv[i]);
        if (!sysinfo_read(path, chip, sizeof chip)) continue;
        chip[strcspn(chip, "\n")] = '\0';
        bool processor = false;
        for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
            processor = processor || strcmp(chip, chips[c]) == 0;
        if (!processor || !read_number(found.gl_pathv[i], &value)) continue;
        value /= 1000;
        if (!(value <= hottest)) {
            hottest = value;
            snprintf(name, size, "%s", chip);
        }
    }
    globfree(&found);
    return hottest;
}
