// phases.h — the phases of a soak, in the order of their run.
#pragma once

#include "tests/soak/soak.h"

namespace encoderd::soak {

void MixedLengths(const Soak& soak);      // 20 clients, all lengths; batches smaller than calls
void LongAmongShort(const Soak& soak);    // what a long sequence costs the short ones, and reverse
void Overload(const Soak& soak);          // twice what it can do; calls that go while they wait
void VanishingClients(const Soak& soak);  // clients that close the socket in the middle
void Quiet(const Soak& soak);             // pings, a call that waits long, a call a second, nothing
void Bursts(const Soak& soak);            // memory after many large answers at once
void RandomShapes(const Soak& soak);      // memory under shapes that never repeat
void CpuQuota(const Soak& soak);          // a server under a quota of one CPU
void Drains(const Soak& soak);            // SIGTERM under load
void Service(const Soak& soak);           // everything mixed, for the rest of the time

}  // namespace encoderd::soak
