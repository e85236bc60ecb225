// Starts a map from TypeScript with the official Temporal SDK: the workflow's name and a JSON input are all it takes.
//
//     node dist/start.js TASK ITEM...      every ITEM is a JSON value
import { randomUUID } from 'node:crypto';
import { Client, Connection, WorkflowFailedError } from '@temporalio/client';
import type { MapInput, Progress, Summary } from './gpumux.js';

async function main(task: string, items: unknown[]): Promise<number> {
  const connection = await Connection.connect({ address: process.env['TEMPORAL_ADDRESS'] ?? '127.0.0.1:7233' });
  try {
    const client = new Client({ connection, namespace: process.env['TEMPORAL_NAMESPACE'] ?? 'default' });
    const input: MapInput = { task, items, ladder: ['cpu'] };
    const handle = await client.workflow.start<(input: MapInput) => Promise<Summary>>('gpumux.Map', {
      args: [input],
      taskQueue: 'gpumux',
      workflowId: `typescript-${randomUUID()}`,
    });
    const summary = await handle.result();
    for (const { fault, value } of summary.results ?? []) {
      console.log(fault ? `${fault.kind}: ${fault.message}` : JSON.stringify(value));
    }
    const progress = await handle.query<Progress>('progress');
    console.log(`${progress.succeeded} of ${progress.items} succeeded, phase ${progress.phase}`);
    return 0;
  } catch (error) {
    if (!(error instanceof WorkflowFailedError)) throw error;
    // What ends a whole map is an ApplicationFailure whose type is the fault's kind.
    console.error(error.cause?.message);
    return 1;
  } finally {
    await connection.close();
  }
}

const [task, ...items] = process.argv.slice(2);
if (task === undefined || items.length === 0) {
  console.error('usage: node dist/start.js TASK ITEM...');
  process.exitCode = 2;
} else {
  process.exitCode = await main(task, items.map((item) => JSON.parse(item) as unknown));
}
