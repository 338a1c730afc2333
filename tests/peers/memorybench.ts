/**
 * A provider for memorybench: its benchmarks against a running localmem.
 *
 * Copy this file to src/providers/localmem/index.ts in a checkout of memorybench, and name `localmem` where `zep` is named in
 * src/providers/index.ts, src/types/provider.ts and src/utils/config.ts. LOCALMEM_URL is the server, LOCALMEM_KEY an operator's
 * key, because each question has a user of its own.
 */
import type { IngestOptions, IngestResult, Provider, SearchOptions } from "../../types/provider"
import type { UnifiedSession } from "../../types/unified"

export class LocalmemProvider implements Provider {
    name = "localmem"

    private async call(user: string, method: string, path: string, body?: unknown): Promise<any> {
        const headers: Record<string, string> = { "content-type": "application/json", "x-localmem-user": user }
        headers.authorization = `Bearer ${process.env.LOCALMEM_KEY}`
        const response = await fetch(process.env.LOCALMEM_URL + path, { method, headers, body: body && JSON.stringify(body) })
        if (!response.ok && !(method === "DELETE" && response.status === 404)) throw new Error(await response.text())
        return response.json()
    }

    async initialize(): Promise<void> {}

    async ingest(sessions: UnifiedSession[], { containerTag }: IngestOptions): Promise<IngestResult> {
        const sent = sessions.map((session) => ({
            time: session.metadata?.date ?? new Date().toISOString(),
            turns: session.messages.map(({ role, content, speaker }) => ({ role, text: content, speaker })),
        }))
        await this.call(containerTag, "POST", "/v1/sessions", { sessions: sent })
        return { documentIds: sessions.map((session) => session.sessionId) }
    }

    async awaitIndexing(_: IngestResult, containerTag: string): Promise<void> {
        while (!(await this.call(containerTag, "GET", "/v1/jobs?wait=60")).done);
    }

    async search(query: string, { containerTag, limit }: SearchOptions): Promise<unknown[]> {
        return (await this.call(containerTag, "POST", "/v1/memories/search", { query, limit })).data
    }

    async clear(containerTag: string): Promise<void> {
        await this.call(containerTag, "DELETE", "/v1/memories?confirm=all")
    }
}
