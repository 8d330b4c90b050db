// Verifies requests of webhooks by the published libraries, and prints what they carry. It reads one
// JSON object a line: {secret, headers, body}. It prints one a line: the event, or {error}.
import { createInterface } from "node:readline";
import cloudevents from "cloudevents";
import standardwebhooks from "standardwebhooks";

for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line);
  let out;
  try {
    new standardwebhooks.Webhook(secret).verify(body, headers);
    const event = cloudevents.HTTP.toEvent({ headers, body });
    event.validate();
    out = event.toJSON();
  } catch (error) {
    out = { error: `${error.name}: ${error.message}` };
  }
  console.log(JSON.stringify(out));
}
