# What a board is, printed for edgekit: one pass, nothing but a POSIX shell and what every Linux has. "@name" begins a fact, each line of
# it follows after a blank; "!name" is a fact that is there and cannot be read. EDGEKIT_ROOT is put before /proc, /sys, /dev and /etc.
R=${EDGEKIT_ROOT:-}
H=${1:-$HOME/.edgekit}
LC_ALL=C
export LC_ALL

say() { # NAME TEXT
  printf '@%s\n' "$1"
  printf '%s\n' "$2" | while IFS= read -r line; do printf ' %s\n' "$line"; done
}
show() { # NAME FILE
  [ -e "$2" ] || return 0
  if text=$(tr '\000' '\n' <"$2" 2>/dev/null); then say "$1" "$text"; else printf '!%s\n' "$1"; fi
}
has() { command -v "$1" >/dev/null 2>&1; }

say system "$(uname -s; uname -r; uname -m)"
say hostname "$(uname -n)"
say bits "$(getconf LONG_BIT 2>/dev/null)"
say libc "$( (getconf GNU_LIBC_VERSION || ldd --version) 2>&1 | head -n 1)"
say cores "$(getconf _NPROCESSORS_ONLN 2>/dev/null)"
say time "$(date -u +%s)"
say user "$(id -un; id -u)"
say groups "$(id -Gn)"
say home "$H"
say disk "$( (d=$H; while [ ! -d "$d" ]; do d=$(dirname "$d"); done; df -Pk "$d" | tail -n 1; [ -w "$d" ] && echo writable || echo read-only) 2>/dev/null)"

for base in "$R/proc/device-tree" "$R/sys/firmware/devicetree/base"; do
  if [ -e "$base/model" ]; then
    show model "$base/model"
    show compatible "$base/compatible"
    break
  fi
done
show cpuinfo "$R/proc/cpuinfo"
show meminfo "$R/proc/meminfo"
show swaps "$R/proc/swaps"
show os "$R/etc/os-release"
show tegra "$R/etc/nv_tegra_release"
show boot_id "$R/proc/sys/kernel/random/boot_id"
for policy in "$R"/sys/devices/system/cpu/cpufreq/policy*; do
  [ -d "$policy" ] || continue
  for name in scaling_governor cpuinfo_min_freq cpuinfo_max_freq scaling_max_freq scaling_available_governors affected_cpus; do
    show "cpufreq.${policy##*/}.$name" "$policy/$name"
  done
done
for zone in "$R"/sys/class/thermal/thermal_zone*; do
  [ -d "$zone" ] || continue
  show "zone.${zone##*/thermal_zone}.type" "$zone/type"
  show "zone.${zone##*/thermal_zone}.temp" "$zone/temp"
done
for monitor in "$R"/sys/class/hwmon/hwmon*; do
  [ -d "$monitor" ] || continue
  show "hwmon.${monitor##*/hwmon}.name" "$monitor/name"
  for file in "$monitor"/temp1_input "$monitor"/in1_input "$monitor"/in1_label "$monitor"/curr1_input "$monitor"/in0_lcrit_alarm "$monitor"/fan1_input; do
    show "hwmon.${monitor##*/hwmon}.${file##*/}" "$file"
  done
done
show throttled.sysfs "$R/sys/devices/platform/soc/soc:firmware/get_throttled"
for device in vcio vchiq; do
  [ -e "$R/dev/$device" ] || continue
  if [ -r "$R/dev/$device" ] && [ -w "$R/dev/$device" ]; then say "dev.$device" ok; else printf '!dev.%s\n' "$device"; fi
  say "dev.$device.owner" "$(ls -ld "$R/dev/$device" | { read -r mode _ owner group _; echo "$mode $owner $group"; })"
done

# A tool that hangs must not hold up the rest.
within() { # SECONDS COMMAND...
  seconds=$1
  shift
  if has timeout; then timeout "$seconds" "$@"; else "$@"; fi
}
for tool in vcgencmd /opt/vc/bin/vcgencmd /usr/bin/vcgencmd; do
  if has "$tool"; then
    say vcgencmd "$(within 3 "$tool" get_throttled 2>&1; echo "exit $?")"
    break
  fi
done
has nvpmodel && say nvpmodel "$(within 3 nvpmodel -q 2>&1)"
has apt-get && say packager apt

PROBE='import sys
print("version %d.%d.%d" % sys.version_info[:3]); print("bits", 64 if sys.maxsize > 2 ** 32 else 32); print("path", sys.executable)
for name in ("numpy", "ai_edge_litert", "tflite_runtime", "tensorflow", "cryptography"):
    try:
        import importlib.util as u
        if u.find_spec(name) is None: continue
        try:
            from importlib.metadata import version
        except ImportError:
            print(name, "unknown"); continue
        try: print(name, version(name.replace("_", "-")))
        except Exception: print(name, "unknown")
    except Exception: pass
'
seen=
for name in python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python3.7 python3.6 python3; do
  path=$(command -v "$name" 2>/dev/null) || continue
  text=$("$path" -c "$PROBE" 2>/dev/null) || continue
  version=${text%%
*}
  case "$seen" in *"|$version|"*) continue ;; esac
  seen="$seen|$version|"
  say "python.$name" "$text"
done
show environment "$H/env/current/edgekit-env.json"
for app in "$H"/apps/*; do
  [ -d "$app" ] || continue
  say "app.${app##*/}" "$(readlink "$app/current" 2>/dev/null)
$([ -e "$app/pending.json" ] && echo pending)"
done
say end ok
